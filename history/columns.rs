//! Columns that are as narrow as what they hold.
//!
//! Most histories have few functions, few processes and small numbers. A column begins with one
//! byte a row and is copied into a wider one when a value no longer fits, which happens at most
//! three times. A column in which nothing was ever said costs nothing.

/// Unsigned numbers, each in as many bytes as the largest of them needs: 1, 2, 4 or 8.
#[derive(Debug, Clone)]
pub(crate) enum Narrow {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
}

impl Default for Narrow {
    fn default() -> Narrow {
        Narrow::One(Vec::new())
    }
}

impl Narrow {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Narrow::One(rows) => rows.len(),
            Narrow::Two(rows) => rows.len(),
            Narrow::Four(rows) => rows.len(),
            Narrow::Eight(rows) => rows.len(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, row: usize) -> u64 {
        match self {
            Narrow::One(rows) => u64::from(rows[row]),
            Narrow::Two(rows) => u64::from(rows[row]),
            Narrow::Four(rows) => u64::from(rows[row]),
            Narrow::Eight(rows) => rows[row],
        }
    }

    pub(crate) fn last(&self) -> Option<u64> {
        self.len().checked_sub(1).map(|row| self.get(row))
    }

    #[inline]
    pub(crate) fn push(&mut self, value: u64) {
        self.widen_for(value);
        match self {
            Narrow::One(rows) => rows.push(value as u8),
            Narrow::Two(rows) => rows.push(value as u16),
            Narrow::Four(rows) => rows.push(value as u32),
            Narrow::Eight(rows) => rows.push(value),
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, row: usize, value: u64) {
        self.widen_for(value);
        match self {
            Narrow::One(rows) => rows[row] = value as u8,
            Narrow::Two(rows) => rows[row] = value as u16,
            Narrow::Four(rows) => rows[row] = value as u32,
            Narrow::Eight(rows) => rows[row] = value,
        }
    }

    #[inline]
    fn widen_for(&mut self, value: u64) {
        let most = match self {
            Narrow::One(_) => u64::from(u8::MAX),
            Narrow::Two(_) => u64::from(u16::MAX),
            Narrow::Four(_) => u64::from(u32::MAX),
            Narrow::Eight(_) => u64::MAX,
        };
        if value > most {
            self.widen(value);
        }
    }

    #[cold]
    fn widen(&mut self, value: u64) {
        let rows = 0..self.len();
        *self = if value <= u64::from(u16::MAX) {
            Narrow::Two(rows.map(|row| self.get(row) as u16).collect())
        } else if value <= u64::from(u32::MAX) {
            Narrow::Four(rows.map(|row| self.get(row) as u32).collect())
        } else {
            Narrow::Eight(rows.map(|row| self.get(row)).collect())
        };
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        match self {
            Narrow::One(rows) => rows.shrink_to_fit(),
            Narrow::Two(rows) => rows.shrink_to_fit(),
            Narrow::Four(rows) => rows.shrink_to_fit(),
            Narrow::Eight(rows) => rows.shrink_to_fit(),
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Narrow::One(rows) => rows.capacity(),
            Narrow::Two(rows) => rows.capacity() * 2,
            Narrow::Four(rows) => rows.capacity() * 4,
            Narrow::Eight(rows) => rows.capacity() * 8,
        }
    }
}

/// Numbers of which most rows may have none. Rows after the last number are not kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sparse {
    /// One more than the number; 0 where there is none.
    rows: Narrow,
}

impl Sparse {
    #[inline]
    pub(crate) fn get(&self, row: usize) -> Option<u32> {
        if row >= self.rows.len() {
            return None;
        }
        let one_more = self.rows.get(row);
        (one_more > 0).then(|| (one_more - 1) as u32)
    }

    /// Says what stands in a row that is not before the last one that has a number.
    #[inline]
    pub(crate) fn put(&mut self, row: usize, number: Option<u32>) {
        let Some(number) = number else {
            return;
        };
        while self.rows.len() < row {
            self.rows.push(0);
        }
        self.rows.push(u64::from(number) + 1);
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.rows.shrink_to_fit();
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.rows.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(
            values in prop::collection::vec((any::<u64>(), 0u32..64), 0..50),
            changed in any::<prop::sample::Index>(),
        ) {
            let mut values: Vec<u64> = values.iter().map(|&(value, shift)| value >> shift).collect();
            let mut column = Narrow::default();
            for &value in &values {
                column.push(value);
            }
            if !values.is_empty() {
                let row = changed.index(values.len());
                values[row] = values[0].rotate_left(17);
                column.set(row, values[row]);
            }
            prop_assert_eq!(column.last(), values.last().copied());
            let back: Vec<u64> = (0..column.len()).map(|row| column.get(row)).collect();
            prop_assert_eq!(back, values);
        }

        #[test]
        fn gaps_come_back(numbers in prop::collection::vec(prop::option::of(any::<u32>()), 0..50)) {
            let mut column = Sparse::default();
            for (row, &number) in numbers.iter().enumerate() {
                column.put(row, number);
            }
            let back: Vec<_> = (0..numbers.len()).map(|row| column.get(row)).collect();
            prop_assert_eq!(back, numbers);
        }
    }

    #[test]
    fn what_was_never_said_costs_nothing() {
        let mut column = Sparse::default();
        (0..1000).for_each(|row| column.put(row, None));
        assert_eq!(column.heap_bytes(), 0);
    }
}
