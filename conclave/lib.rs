//! The coordination service that schism ships, with switches that break it on purpose.
