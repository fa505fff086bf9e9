//! What is done to the cluster: faults, targets, plans and the ledger.
