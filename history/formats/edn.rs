//! Operations as EDN maps: `history.edn` of Jepsen, the test files of Knossos and Elle, the kv logs
//! of Porcupine.

use super::{Format, Options, Reader};
use crate::Error;
use crate::history::History;
use crate::ops;
use crate::source::Source;
use crate::syntax::Dialect;

pub(super) struct Edn;

impl Format for Edn {
    fn name(&self) -> &'static str {
        "edn"
    }

    fn about(&self) -> &'static str {
        "operations as EDN maps, in one vector or one after the other: Jepsen's history.edn, \
         Knossos, Elle, Porcupine's kv logs"
    }

    fn recognises(&self, begin: &[u8]) -> bool {
        ops::begins(begin, Dialect::Edn)
    }
}

impl Reader for Edn {
    fn read(&self, source: &mut Source<'_>, options: &Options) -> Result<History, Error> {
        ops::read(source, Dialect::Edn, options)
    }
}
