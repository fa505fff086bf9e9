//! The op and event model of schism and the history file.
