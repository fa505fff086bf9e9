//! What must hold: one pure checker per property.
