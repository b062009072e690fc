"""Numbers to artefacts: tables, plots, progress. Scaling and formatting happen here only."""
