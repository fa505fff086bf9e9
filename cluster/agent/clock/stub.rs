//! The machine code that takes the place of the vDSO's wall clocks in a process, and the layout of
//! the two pages that it needs there. It is assembled with this program, which copies it out of its
//! own image: nothing is compiled on a node.
//!
//! ```text
//! code page (private, r-x)                parameter page (shared with children that are forked)
//!   0     magic                             0    sequence, one byte; its last bit names the slot
//!   8     address of the parameter page     64   slot 0: seconds, nanoseconds to add
//!   16    how to read the true clock        80   slot 1
//!   24    clock_gettime, gettimeofday,      128  where a clock that we ask puts its answer
//!         time, and a breakpoint            4096 the stack of that call grows down from here
//!   2048  the first instructions of the kernel's clock_gettime, and a jump behind them
//! ```
//!
//! The offset is changed by filling the idle slot and then storing the sequence, one byte: a reader
//! sees the old offset or the new one, and reads again if the sequence changed meanwhile. All calls
//! ask the kernel's `clock_gettime` and add to the wall clocks only, so that every other clock, errors
//! included, is the kernel's own.

use std::arch::global_asm;

pub(super) const PAGE: u64 = 4096;
/// Marks a page as ours.
pub(super) const MAGIC: [u8; 8] = *b"schismtm";
/// Where the kernel's own first instructions go.
const TRAMPOLINE: usize = 2048;
/// How much of a function is overwritten: a jump to an address within 2 GiB.
pub(super) const JUMP: usize = 5;

/// Where things are in the parameter page.
pub(super) const SEQUENCE: u64 = 0;
pub(super) const SLOTS: u64 = 64;
pub(super) const SLOT: u64 = 16;
pub(super) const ANSWER: u64 = 128;

// The functions keep to the C ABI of x86-64. On entry the stack is 8 beyond a multiple of 16, and a
// call needs it at such a multiple.
global_asm!(
    ".pushsection .rodata.schism_clock, \"a\", @progbits",
    ".balign 16",
    ".hidden schism_clock_begin, schism_clock_gettime, schism_clock_gettimeofday",
    ".hidden schism_clock_time, schism_clock_landing, schism_clock_end",
    ".globl schism_clock_begin, schism_clock_gettime, schism_clock_gettimeofday",
    ".globl schism_clock_time, schism_clock_landing, schism_clock_end",
    "schism_clock_begin:",
    ".ascii \"schismtm\"",
    "2: .quad 0", // the parameter page
    "3: .quad 0", // the trampoline; 0: make a system call
    // int clock_gettime(clockid_t edi, struct timespec *rsi)
    "schism_clock_gettime:",
    "push rbx",
    "push r12",
    "sub rsp, 8",
    "mov ebx, edi",
    "mov r12, rsi",
    "call 7f",
    "test eax, eax",
    "jnz 6f",
    "cmp ebx, 11",
    "ja 6f",
    // REALTIME (0), REALTIME_COARSE (5), REALTIME_ALARM (8) and TAI (11)
    "mov ecx, 0x921",
    "bt ecx, ebx",
    "jnc 6f",
    "mov rdx, [rip + 2b]",
    "4: movzx ecx, byte ptr [rdx]",
    "mov r8d, ecx",
    "and r8d, 1",
    "shl r8d, 4",
    "mov r9, [rdx + r8 + 64]",
    "mov r10, [rdx + r8 + 72]",
    "cmp cl, [rdx]",
    "jne 4b",
    "add r9, [r12]",
    "add r10, [r12 + 8]",
    "cmp r10, 1000000000",
    "jb 5f",
    "sub r10, 1000000000",
    "inc r9",
    "5: mov [r12], r9",
    "mov [r12 + 8], r10",
    "6: add rsp, 8",
    "pop r12",
    "pop rbx",
    "ret",
    // The true clock, with the arguments of clock_gettime.
    "7: mov rax, [rip + 3b]",
    "test rax, rax",
    "jz 8f",
    "jmp rax",
    "8: mov eax, 228", // clock_gettime
    "syscall",
    "ret",
    // int gettimeofday(struct timeval *rdi, struct timezone *rsi)
    "schism_clock_gettimeofday:",
    "push rbx",
    "sub rsp, 16",
    "mov rbx, rdi",
    "test rsi, rsi",
    "jz 4f",
    "xor edi, edi",
    "mov eax, 96", // gettimeofday, for the time zone only
    "syscall",
    "test eax, eax",
    "jnz 6f",
    "4: xor eax, eax",
    "test rbx, rbx",
    "jz 6f",
    "xor edi, edi",
    "mov rsi, rsp",
    "call schism_clock_gettime",
    "mov rax, [rsp]",
    "mov [rbx], rax",
    "mov eax, [rsp + 8]",
    "xor edx, edx",
    "mov ecx, 1000",
    "div ecx",
    "mov [rbx + 8], rax",
    "xor eax, eax",
    "6: add rsp, 16",
    "pop rbx",
    "ret",
    // time_t time(time_t *rdi), which is as coarse as the kernel's
    "schism_clock_time:",
    "push rbx",
    "sub rsp, 16",
    "mov rbx, rdi",
    "mov edi, 5",
    "mov rsi, rsp",
    "call schism_clock_gettime",
    "mov rax, [rsp]",
    "test rbx, rbx",
    "jz 4f",
    "mov [rbx], rax",
    "4: add rsp, 16",
    "pop rbx",
    "ret",
    // Where calls that we make return to.
    "schism_clock_landing:",
    "int3",
    "schism_clock_end:",
    ".popsection",
);

unsafe extern "C" {
    safe static schism_clock_begin: u8;
    safe static schism_clock_gettime: u8;
    safe static schism_clock_gettimeofday: u8;
    safe static schism_clock_time: u8;
    safe static schism_clock_landing: u8;
    safe static schism_clock_end: u8;
}

/// How far a label is from the beginning.
fn offset(label: &'static u8) -> u64 {
    (&raw const *label).addr() as u64 - (&raw const schism_clock_begin).addr() as u64
}

/// The addresses in a code page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stub {
    /// Where the page begins.
    pub(super) page: u64,
}

impl Stub {
    /// What replaces `clock_gettime`, `gettimeofday` and `time`, in this order.
    pub(super) fn entries(self) -> [u64; 3] {
        [
            self.page + offset(&schism_clock_gettime),
            self.page + offset(&schism_clock_gettimeofday),
            self.page + offset(&schism_clock_time),
        ]
    }

    /// A breakpoint.
    pub(super) fn landing(self) -> u64 {
        self.page + offset(&schism_clock_landing)
    }

    /// The bytes of the page, for parameters at `params`. `prologue` are the first instructions of
    /// the kernel's `clock_gettime`, with the address behind them; without them the true clock is
    /// read by a system call, which takes some forty times as long.
    pub(super) fn bytes(self, params: u64, prologue: Option<(&[u8], u64)>) -> Vec<u8> {
        let len = offset(&schism_clock_end) as usize;
        // SAFETY: both labels are in one section of this program, which is mapped and never written;
        // between them are `len` bytes.
        let code = unsafe { std::slice::from_raw_parts(&raw const schism_clock_begin, len) };
        let mut page = code.to_vec();
        page[8..16].copy_from_slice(&params.to_le_bytes());
        if let Some((prologue, behind)) = prologue {
            let trampoline = self.page + TRAMPOLINE as u64;
            page[16..24].copy_from_slice(&trampoline.to_le_bytes());
            page.resize(TRAMPOLINE, 0);
            page.extend_from_slice(prologue);
            // jmp [rip]; the address
            page.extend_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
            page.extend_from_slice(&behind.to_le_bytes());
        }
        page
    }
}

/// A jump from one address to another; `None` if they are more than 2 GiB apart.
pub(super) fn jump(from: u64, to: u64) -> Option<[u8; JUMP]> {
    let distance = to.wrapping_sub(from + JUMP as u64).cast_signed();
    let distance = i32::try_from(distance).ok()?.to_le_bytes();
    let mut jump = [0xe9, 0, 0, 0, 0];
    jump[1..].copy_from_slice(&distance);
    Some(jump)
}

/// Where a jump at this address goes, if it is one.
pub(super) fn target(from: u64, bytes: &[u8]) -> Option<u64> {
    let [0xe9, distance @ ..] = bytes.first_chunk::<JUMP>()? else {
        return None;
    };
    let distance = i64::from(i32::from_le_bytes(*distance));
    Some((from + JUMP as u64).wrapping_add_signed(distance))
}

/// How many bytes the first whole instructions of a function take that a jump would overwrite, if
/// all of them do the same at any address. Only what compilers begin functions with is known.
pub(super) fn movable(code: &[u8]) -> Option<usize> {
    let mut len = 0;
    while len < JUMP {
        len += movable_instruction(code.get(len..)?)?;
    }
    Some(len)
}

fn movable_instruction(code: &[u8]) -> Option<usize> {
    const REGISTERS_ONLY: std::ops::RangeInclusive<u8> = 0xc0..=0xff;
    let (rex, rest) = match code.first()? {
        0x40..=0x4f => (1, &code[1..]),
        _ => (0, code),
    };
    let len = match rest {
        // endbr64, which has its own prefix
        [0xf3, 0x0f, 0x1e, 0xfa, ..] if rex == 0 => 4,
        // push
        [0x50..=0x57, ..] => 1,
        // xor, mov
        [0x31 | 0x33 | 0x89 | 0x8b, modrm, ..] if REGISTERS_ONLY.contains(modrm) => 2,
        // and, sub, cmp, ... with a small number
        [0x83, modrm, _, ..] if REGISTERS_ONLY.contains(modrm) => 3,
        _ => return None,
    };
    Some(rex + len)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use proptest::prelude::*;

    use super::*;

    /// The stub in this very process, where it can be called.
    struct Here {
        stub: Stub,
        params: *mut u8,
    }

    type ClockGettime = extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;
    type Gettimeofday = extern "C" fn(*mut libc::timeval, *mut [libc::c_int; 2]) -> libc::c_int;
    type Time = extern "C" fn(*mut libc::time_t) -> libc::time_t;

    impl Here {
        fn new() -> Here {
            let map = |prot| {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                // SAFETY: a new mapping, wherever there is room.
                let page = unsafe { libc::mmap(ptr::null_mut(), 4096, prot, flags, -1, 0) };
                assert_ne!(page, libc::MAP_FAILED);
                page.cast::<u8>()
            };
            let (code, params) = (
                map(libc::PROT_READ | libc::PROT_WRITE),
                map(libc::PROT_READ | libc::PROT_WRITE),
            );
            let page = code.addr() as u64;
            let stub = Stub { page };
            let bytes = stub.bytes(params.addr() as u64, None);
            // SAFETY: the page is ours, writable and large enough; then it becomes executable.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), code, bytes.len());
                let prot = libc::PROT_READ | libc::PROT_EXEC;
                assert_eq!(libc::mprotect(code.cast(), 4096, prot), 0);
            }
            Here { stub, params }
        }

        fn set(&self, seconds: i64, nanoseconds: i64) {
            // SAFETY: the parameter page is ours and aligned; nobody reads it at this moment.
            unsafe {
                let next = *self.params.add(SEQUENCE as usize) + 1;
                let slot = SLOTS + SLOT * u64::from(next & 1);
                let slot = self.params.add(slot as usize).cast::<i64>();
                slot.write(seconds);
                slot.add(1).write(nanoseconds);
                self.params.add(SEQUENCE as usize).write(next);
            }
        }

        fn call<F: Copy>(&self, entry: usize) -> F {
            let address = self.stub.entries()[entry] as usize;
            // SAFETY: the stub has a function of this type there.
            unsafe { std::mem::transmute_copy(&ptr::with_exposed_provenance::<()>(address)) }
        }

        fn clock(&self, clock: libc::clockid_t) -> Result<i128, libc::c_int> {
            let mut answer = libc::timespec {
                tv_sec: -1,
                tv_nsec: -1,
            };
            match self.call::<ClockGettime>(0)(clock, &raw mut answer) {
                0 => Ok(i128::from(answer.tv_sec) * 1_000_000_000 + i128::from(answer.tv_nsec)),
                error => Err(error),
            }
        }
    }

    fn truth(clock: libc::clockid_t) -> Option<i128> {
        let now = nix::time::clock_gettime(clock.into()).ok()?;
        Some(i128::from(now.tv_sec()) * 1_000_000_000 + i128::from(now.tv_nsec()))
    }

    #[test]
    fn wall_clocks_are_moved_and_no_others() {
        let here = Here::new();
        for (seconds, nanoseconds) in [(0, 0), (1000, 0), (-501, 500_000_000), (7, 999_999_999)] {
            here.set(seconds, nanoseconds);
            let moved = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
            for clock in (0..=11).chain([4711]) {
                let (before, told, after) = (truth(clock), here.clock(clock), truth(clock));
                let (Some(before), Some(after)) = (before, after) else {
                    // There is no such clock here: those of alarms need a device.
                    assert!(matches!(clock, 8..=10 | 4711), "{clock}");
                    assert_eq!(told, Err(-libc::EINVAL));
                    continue;
                };
                let wall = matches!(clock, 0 | 5 | 8 | 11);
                let told = told.unwrap() - if wall { moved } else { 0 };
                assert!(before <= told && told <= after, "clock {clock}: {told}");
            }
        }
    }

    #[test]
    fn all_three_functions_tell_the_same_time() {
        let here = Here::new();
        here.set(-1_000_000, 250_000_000);
        let mut zone = [7, 7];
        let mut of_day = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let before = here.clock(libc::CLOCK_REALTIME).unwrap();
        let answer = here.call::<Gettimeofday>(1)(&raw mut of_day, &raw mut zone);
        let after = here.clock(libc::CLOCK_REALTIME).unwrap();
        assert_eq!(answer, 0);
        let told = i128::from(of_day.tv_sec) * 1_000_000 + i128::from(of_day.tv_usec);
        assert!(before / 1000 <= told && told <= after / 1000);
        assert!((0..1_000_000).contains(&of_day.tv_usec));
        assert_ne!(zone, [7, 7], "the time zone is the kernel's");
        let nothing = here.call::<Gettimeofday>(1)(ptr::null_mut(), ptr::null_mut());
        assert_eq!(nothing, 0);

        let before = here.clock(libc::CLOCK_REALTIME_COARSE).unwrap();
        let mut written = 0;
        let returned = here.call::<Time>(2)(&raw mut written);
        let after = here.clock(libc::CLOCK_REALTIME_COARSE).unwrap();
        assert_eq!(returned, written);
        let told = i128::from(returned);
        assert!(before / 1_000_000_000 <= told && told <= after / 1_000_000_000);
        let again = here.call::<Time>(2)(ptr::null_mut());
        assert!(again - returned <= 1);
    }

    #[test]
    fn the_code_fits_before_the_trampoline() {
        let stub = Stub { page: 0x1000 };
        assert!(stub.bytes(0, None).len() < TRAMPOLINE);
        let with = stub.bytes(0, Some((&[0x55], 0x5000)));
        assert_eq!(with[16..24], 0x1800_u64.to_le_bytes());
        assert_eq!(with[TRAMPOLINE..TRAMPOLINE + 3], [0x55, 0xff, 0x25]);
        assert!(with.starts_with(&MAGIC));
    }

    #[test]
    fn only_known_beginnings_are_moved() {
        // push rbp; mov rbp, rsp; push r14; push rbx; and rsp, -16
        let now = [
            0x55, 0x48, 0x89, 0xe5, 0x41, 0x56, 0x53, 0x48, 0x83, 0xe4, 0xf0,
        ];
        assert_eq!(movable(&now), Some(6));
        // endbr64; push rbp
        assert_eq!(movable(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x90]), Some(5));
        // cmp edi, 23; mov r12, rsi
        assert_eq!(movable(&[0x83, 0xff, 0x17, 0x49, 0x89, 0xf4]), Some(6));
        // push rbp; lea r10, [rip - ...]
        assert_eq!(
            movable(&[0x55, 0x4c, 0x8d, 0x15, 0xe8, 0x97, 0xff, 0xff]),
            None
        );
        // mov eax, [rdi]: not between registers
        assert_eq!(movable(&[0x8b, 0x07, 0x55, 0x55, 0x55]), None);
        // It is torn.
        assert_eq!(movable(&[0x55, 0x55, 0x48]), None);
    }

    proptest! {
        #[test]
        fn a_jump_goes_where_it_should(from in 0x1000_u64..1 << 47, by in -(1_i64 << 33)..1 << 33) {
            let to = from.wrapping_add_signed(by);
            let near = i32::try_from(by - JUMP as i64).is_ok();
            let jump = jump(from, to);
            prop_assert_eq!(jump.is_some(), near);
            if let Some(jump) = jump {
                prop_assert_eq!(target(from, &jump), Some(to));
            }
        }

        #[test]
        fn any_bytes_are_looked_at_in_peace(code in proptest::collection::vec(any::<u8>(), 0..20)) {
            prop_assert!(movable(&code).is_none_or(|len| len <= code.len()));
            target(0x1000, &code);
        }
    }
}
