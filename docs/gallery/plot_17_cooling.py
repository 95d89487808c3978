"""
Cooling
=======

Frontier with some large jobs, at a wet-bulb temperature of 12 °C: what the machine and its cooling
take, PUE, and how warm the water is.
"""

from hpctwin import generate, simulate
from hpctwin.report import plot_cooling

jobs = generate("poisson", jobs=60, nodes=9472, load=0.7, mean_runtime_s=3600, seed=12)
energy = simulate(jobs, "frontier", "fcfs+easy", log=True).energy

cooling = plot_cooling(energy.cooled(12.0, step_s=60))
