"""Plain numpy oracles, written from the published definitions, blind to the code they check."""
