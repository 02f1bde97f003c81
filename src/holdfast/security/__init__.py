"""Who speaks, how that is proved, and what one may do: principals, SASL, rights, authorizer, quotas. Decides only."""
