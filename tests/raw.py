"""No transforms: for tests that compare with dense algebra in the units of the data."""

RAW = {"input_transform": None, "outcome_transform": None}
