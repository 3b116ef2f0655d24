"""Where the ledger is kept; each store fills `penstock.budget.ports.LedgerStore`."""
