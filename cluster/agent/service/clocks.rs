//! The wall clocks of services: moved, and kept moved in what the services execute. What is done to
//! the processes of one is in `../clock.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::super::{blocking, clock};
use super::Services;
use crate::channel::lock;
use crate::error::Refusal;
use crate::evidence::ClockEvidence;

/// How often it is looked whether a service with a moved clock has executed something.
const KEEP_CLOCKS: Duration = Duration::from_millis(20);

/// The services whose clocks are moved.
pub(super) struct Skews {
    by_service: Arc<Mutex<BTreeMap<String, Skew>>>,
    changed: Notify,
    /// Held by whoever waits for children or for processes that it has stopped.
    waits: Arc<tokio::sync::Mutex<()>>,
}

/// The wall clock of a service that is moved.
#[derive(Debug, Clone)]
struct Skew {
    offset_ns: i64,
    /// How many processes were found later.
    late: usize,
    /// Why the last that were found could not be moved.
    trouble: Option<Refusal>,
}

impl Skews {
    pub(super) fn new(waits: Arc<tokio::sync::Mutex<()>>) -> Self {
        Self {
            by_service: Arc::default(),
            changed: Notify::new(),
            waits,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Skew>> {
        lock(&self.by_service)
    }
}

impl Services {
    pub(in super::super) async fn skew(
        &self,
        name: &str,
        offset_ns: i64,
    ) -> Result<ClockEvidence, Refusal> {
        let service = self.find(name)?;
        let owned = name.to_owned();
        let moved = self
            .stopping(move || clock::skew(&owned, &|| service.look(), offset_ns))
            .await;
        let mut skews = self.skews.lock();
        if moved.is_err() {
            skews.remove(name);
        } else {
            let skew = Skew {
                offset_ns,
                late: 0,
                trouble: None,
            };
            skews.insert(name.to_owned(), skew);
            self.skews.changed.notify_one();
        }
        moved
    }

    pub(in super::super) async fn unskew(&self, name: &str) -> Result<ClockEvidence, Refusal> {
        self.skews.lock().remove(name);
        let service = self.find(name)?;
        let name = name.to_owned();
        self.stopping(move || clock::unskew(&name, &|| service.look()))
            .await
    }

    pub(in super::super) async fn clocks(&self, name: &str) -> Result<ClockEvidence, Refusal> {
        self.keep_clock(name).await;
        let service = self.find(name)?;
        let owned = name.to_owned();
        let read = self
            .stopping(move || clock::read(&owned, &|| service.look()))
            .await?;
        match self.skews.lock().get(name) {
            None => Ok(read),
            Some(Skew {
                trouble: Some(refusal),
                ..
            }) => Err(refusal.clone()),
            Some(&Skew { late, .. }) => Ok(ClockEvidence { late, ..read }),
        }
    }

    /// Moves the clocks of what services execute while theirs are moved. Never returns.
    pub(in super::super) async fn keep_clocks(&self) {
        loop {
            let names: Vec<String> = self.skews.lock().keys().cloned().collect();
            if names.is_empty() {
                self.skews.changed.notified().await;
            }
            for name in names {
                self.keep_clock(&name).await;
            }
            tokio::time::sleep(KEEP_CLOCKS).await;
        }
    }

    /// Moves the clocks of those processes of a service that still have their own.
    async fn keep_clock(&self, name: &str) {
        if !self.skews.lock().contains_key(name) {
            return;
        }
        let Ok(service) = self.find(name) else {
            return;
        };
        let target = service.clone();
        if blocking(move || clock::any_is_not_moved(&|| target.look())).await == Ok(false) {
            return;
        }
        let (name, skews) = (name.to_owned(), Arc::clone(&self.skews.by_service));
        let kept = self
            .stopping(move || {
                // It may have been moved back since.
                let Some(offset_ns) = lock(&skews).get(&name).map(|skew| skew.offset_ns) else {
                    return Ok(());
                };
                let kept = clock::keep(&name, &|| service.look(), offset_ns);
                if let Some(skew) = lock(&skews).get_mut(&name) {
                    match kept {
                        Ok(late) => (skew.late, skew.trouble) = (skew.late + late, None),
                        Err(refusal) => skew.trouble = Some(refusal),
                    }
                }
                Ok(())
            })
            .await;
        if let Err(refusal) = kept {
            eprintln!("agent: {refusal}");
        }
    }

    /// Does something that stops processes, while nobody else waits for any.
    async fn stopping<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let waits = Arc::clone(&self.skews.waits).lock_owned().await;
        blocking(move || {
            let _waits = waits;
            work()
        })
        .await
    }
}
