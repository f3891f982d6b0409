"""From a spec to its chain: names and sizes are looked up, each step adds itself to the graph, and whatever is wrong
is collected. Steps are known by their interface only: those of `fusegen.ops` are over this package."""
