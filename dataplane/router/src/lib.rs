//! Where a request goes: the load board, filters, scorers, pickers; no I/O.
