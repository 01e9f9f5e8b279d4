"""The long-lived process at a site: it owns the data, the objective and the trials."""
