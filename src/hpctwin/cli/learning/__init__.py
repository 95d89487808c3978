"""Commands for policies, agents and predictors."""
