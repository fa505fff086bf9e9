//! `bank`: money is moved, never made or lost.

use history::{EventRef, History, NONE, ValueRef};
use rustc_hash::FxHashSet;
use serde_json::Value;

use crate::elements::{at, key, place};
use crate::ident::integer;
use crate::params::{Param, Takes};
use crate::words::{self, Story};
use crate::{Budget, Checked, Checker, Reason};

const READS: &[&str] = &["read", "final-read"];

/// Money is moved, never made or lost.
pub struct Bank;

impl Checker for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn promise(&self) -> &'static str {
        "All reads of all accounts show the same total, whatever is transferred meanwhile; no \
         balance is missing, and none is negative unless that is allowed."
    }

    fn method(&self) -> &'static str {
        "Adds up the balances of every `read` that returned a map of accounts: under snapshot \
         isolation each sees every transfer as a whole or not at all. O(n). Source: the bank test \
         of Jepsen."
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: "total_amount",
                takes: Takes::Count,
                default: "the total of the first read",
                about: "what all balances add up to",
            },
            Param {
                name: "accounts",
                takes: Takes::Names,
                default: "whatever is read",
                about: "the accounts that there are, by their names in a read",
            },
            Param {
                name: "negative_balances",
                takes: Takes::Flag,
                default: "false",
                about: "whether a balance may be negative",
            },
        ]
    }

    fn counts(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("transfers", "transfers that happened"),
            ("reads", "reads that returned balances"),
            ("wrong_total", "reads with another total"),
            (
                "negative",
                "reads with a negative balance that is not allowed",
            ),
            ("nil", "reads with a balance that is no number"),
            ("unexpected", "reads with an account that there is not"),
            ("missing", "reads without an account that there is"),
        ]
    }

    fn check(&self, history: &History, _budget: &Budget) -> Checked {
        let rules = Rules::of(history);
        let mut found = Found::default();
        let mut first_reads: Vec<Option<(i128, EventRef<'_>)>> = Vec::new();
        for op in history.ops() {
            if op.f() == "transfer" {
                found.tried = true;
                found.transfers += u64::from(op.is_ok());
            }
            let answer = op.completion.filter(|_| op.is_ok());
            let Some(answer) = answer.filter(|_| READS.contains(&op.f())) else {
                continue;
            };
            let Some(sheet) = rules.sheet(answer.value()) else {
                continue;
            };
            found.reads += 1;
            let first = at(&mut first_reads, place(op.key_id()));
            let (total, other) = match (rules.total, *first) {
                (Some(total), _) => (total, None),
                (None, Some((total, read))) => (total, Some(read)),
                (None, None) => (sheet.total, None),
            };
            if first.is_none() && sheet.is_whole() {
                *first = Some((sheet.total, answer));
            }
            found.judge(answer, &sheet, total, other);
        }
        let result = match &found.first {
            Some(wrong) => wrong.tell(history),
            None if found.reads > 0 => Checked::valid(),
            None if found.tried => {
                Checked::unknown(Reason::Coverage("no balances were read".to_owned()))
            }
            None => Checked::unknown(Reason::NotApplicable("there are no accounts".to_owned())),
        };
        result
            .count("transfers", found.transfers)
            .count("reads", found.reads)
            .count("wrong_total", found.wrong_total)
            .count("negative", found.negative)
            .count("nil", found.nil)
            .count("unexpected", found.unexpected)
            .count("missing", found.missing)
    }
}

struct Rules<'h> {
    total: Option<i128>,
    accounts: Option<FxHashSet<&'h str>>,
    may_be_negative: bool,
}

/// What a read says, summed up.
#[derive(Default)]
struct Sheet<'h> {
    total: i128,
    negative: Option<(&'h str, ValueRef<'h>)>,
    nil: Option<(&'h str, ValueRef<'h>)>,
    unexpected: Option<&'h str>,
    missing: u64,
}

impl Sheet<'_> {
    /// Whether its total means something.
    fn is_whole(&self) -> bool {
        self.nil.is_none() && self.unexpected.is_none() && self.missing == 0
    }
}

impl<'h> Rules<'h> {
    fn of(history: &'h History) -> Rules<'h> {
        let params = &history.header.params;
        let names = params.get("accounts").and_then(Value::as_array);
        Rules {
            total: history.header.param_u64("total_amount").map(i128::from),
            accounts: names.map(|names| names.iter().filter_map(Value::as_str).collect()),
            may_be_negative: params.get("negative_balances") == Some(&Value::Bool(true)),
        }
    }

    /// Sums a map of balances up; `None` if it is none.
    fn sheet(&self, balances: ValueRef<'h>) -> Option<Sheet<'h>> {
        let mut sheet = Sheet::default();
        let mut known = 0;
        for (account, balance) in balances.as_map()? {
            match &self.accounts {
                Some(accounts) if !accounts.contains(account) => {
                    sheet.unexpected.get_or_insert(account);
                }
                _ => known += 1,
            }
            match integer(balance) {
                None => {
                    sheet.nil.get_or_insert((account, balance));
                }
                Some(balance_is) => {
                    sheet.total += balance_is;
                    if balance_is < 0 && !self.may_be_negative {
                        sheet.negative.get_or_insert((account, balance));
                    }
                }
            }
        }
        let all = self.accounts.as_ref().map_or(known, FxHashSet::len);
        sheet.missing = (all - known) as u64;
        Some(sheet)
    }
}

/// A read that breaks the promise.
struct Wrong<'h> {
    read: EventRef<'h>,
    /// What it shows, in words.
    shows: String,
    /// The read that it is compared with.
    other: Option<(EventRef<'h>, i128)>,
}

#[derive(Default)]
struct Found<'h> {
    tried: bool,
    transfers: u64,
    reads: u64,
    wrong_total: u64,
    negative: u64,
    nil: u64,
    unexpected: u64,
    missing: u64,
    first: Option<Wrong<'h>>,
}

impl<'h> Found<'h> {
    fn judge(
        &mut self,
        read: EventRef<'h>,
        sheet: &Sheet<'h>,
        total: i128,
        other: Option<EventRef<'h>>,
    ) {
        let is_off = sheet.nil.is_none() && sheet.total != total;
        self.wrong_total += u64::from(is_off);
        self.negative += u64::from(sheet.negative.is_some());
        self.nil += u64::from(sheet.nil.is_some());
        self.unexpected += u64::from(sheet.unexpected.is_some());
        self.missing += u64::from(sheet.missing > 0);
        if self.first.is_some() {
            return;
        }
        let mut against = None;
        let shows = if let Some(account) = sheet.unexpected {
            format!("account {account}, which there is not")
        } else if sheet.missing > 0 {
            format!("no balance of {} accounts that there are", sheet.missing)
        } else if let Some((account, balance)) = sheet.nil {
            format!("{} as the balance of {account}", words::value(balance))
        } else if is_off {
            against = other.map(|other| (other, total));
            format!("a total of {} instead of {total}", sheet.total)
        } else if let Some((account, balance)) = sheet.negative {
            format!("a balance of {account} of {}", words::value(balance))
        } else {
            return;
        };
        self.first = Some(Wrong {
            read,
            shows,
            other: against,
        });
    }
}

impl Wrong<'_> {
    fn tell(&self, history: &History) -> Checked {
        let mut story = Story::default();
        let read = self.read;
        let asked = read.partner().unwrap_or(read);
        let who = words::who(read);
        let of = words::of_key(history, key(read).unwrap_or(NONE));
        if let Some((other, total)) = self.other {
            let of_other = words::who(other);
            story.tell(
                other,
                format!("{of_other} reads balances that add up to {total}"),
            );
        }
        story.tell(asked, format!("{who} asks for all balances{of}"));
        story.tell(read, format!("{who} reads {}", words::value(read.value())));
        let meanwhile = (asked.index().saturating_sub(1000)..read.index())
            .rev()
            .map(|index| history.event(index))
            .filter(|event| event.f() == "transfer" && key(*event) == key(read));
        for event in meanwhile.take(4) {
            let what = words::value(event.partner().unwrap_or(event).value());
            let what = match event.kind() {
                history::Kind::Invoke => format!("asks for the transfer {what}"),
                history::Kind::Ok => format!("is told that the transfer {what} happened"),
                history::Kind::Fail => format!("is told that the transfer {what} failed"),
                history::Kind::Info => format!("gets no answer to the transfer {what}"),
            };
            story.tell(event, format!("{} {what}", words::who(event)));
        }
        story.tell_faults_within(history);
        Checked::invalid(story.finish(format!("the read{of} by {who} shows {}", self.shows)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, script};

    fn check(text: &str) -> Checked {
        Bank.check(&script::history("bank", text), &Budget::unlimited())
    }

    const GOOD: &str = r#"
        0-1 A read - null -> {"a":10,"b":0}
        2-3 B transfer - {"from":"a","to":"b","amount":3} -> null
        4-5 A read - null -> {"a":7,"b":3}"#;

    #[test]
    fn a_read_with_another_total_is_convicted() {
        assert_eq!(check(GOOD).verdict, Verdict::Valid);
        let bad = check(&GOOD.replace("\"a\":7", "\"a\":8"));
        assert_eq!(bad.verdict, Verdict::Invalid);
        assert_eq!(bad.counted("wrong_total"), Some(1));
        assert_eq!(
            bad.counterexample.unwrap().summary,
            "the read by A shows a total of 11 instead of 10"
        );
        let given = check(&format!("param total_amount 11\n{GOOD}"));
        assert_eq!(given.counted("wrong_total"), Some(2));
    }

    #[test]
    fn odd_balances_are_convicted() {
        let negative = GOOD.replace("\"a\":7,\"b\":3", "\"a\":-1,\"b\":11");
        assert_eq!(check(&negative).counted("negative"), Some(1));
        let allowed = check(&format!("param negative_balances true\n{negative}"));
        assert_eq!(allowed.verdict, Verdict::Valid);
        let nil = check(&GOOD.replace("\"b\":3", "\"b\":null"));
        assert_eq!(nil.verdict, Verdict::Invalid);
        assert_eq!(nil.counted("nil"), Some(1));
    }

    #[test]
    fn accounts_are_held_against_those_that_there_are() {
        let named = format!("param accounts [\"a\",\"b\"]\n{GOOD}");
        assert_eq!(check(&named).verdict, Verdict::Valid);
        let more = check(&named.replace("\"b\":3", "\"b\":1,\"c\":2"));
        assert_eq!(more.counted("unexpected"), Some(1));
        let fewer = check(&named.replace("\"a\":7,\"b\":3", "\"a\":10"));
        assert_eq!(fewer.verdict, Verdict::Invalid);
        assert_eq!(fewer.counted("missing"), Some(1));
    }
}
