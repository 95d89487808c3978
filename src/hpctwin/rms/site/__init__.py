"""The cluster and the policy of a site, as its settings describe them."""
