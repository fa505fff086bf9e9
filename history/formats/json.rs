//! Operations as JSON maps, as elle-cli takes them.

use super::{Format, Options, Reader};
use crate::Error;
use crate::history::History;
use crate::ops;
use crate::source::Source;
use crate::syntax::Dialect;

pub(super) struct Json;

impl Format for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn about(&self) -> &'static str {
        "operations as JSON maps, in one array or one after the other: elle-cli"
    }

    fn recognises(&self, begin: &[u8]) -> bool {
        ops::begins(begin, Dialect::Json)
    }
}

impl Reader for Json {
    fn read(&self, source: &mut Source<'_>, options: &Options) -> Result<History, Error> {
        ops::read(source, Dialect::Json, options)
    }
}
