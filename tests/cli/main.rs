//! The program as its users meet it: started as a process, judged by what it prints, leaves and
//! exits with.

mod bad_input;
mod check;
mod lifecycle;
mod rootless;
mod support;
mod surroundings;
