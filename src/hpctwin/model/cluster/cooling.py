"""The cooling plant of a machine: water loop, pumps, towers."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from hpctwin.model.cluster.racks import Watts
from hpctwin.model.input.settings import Settings

__all__ = ["Cooling"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Celsius = Annotated[float, Field(ge=-20, le=70)]


class Cooling(Settings):
    """Water that takes the heat of a machine to evaporative towers; equations in docs/systems.md.

    Args:
        liquid_share: of the machine's heat that the water takes; the rest goes to the air of the room …
        air_cop: … from where a watt of cooling moves so many; its power is not counted if left out.
        supply_c: the towers keep the water that goes to the machine at this temperature where they can, °C.
        range_k: pumps follow the load so that water comes back so much warmer, K.
        flow_kg_s: the most that pumps move, kg/s.
        least_flow: the least they move, as a share of that.
        pump_w: drawn by the plant's pumps at full flow, W.
        fan_w: drawn by the towers' fans at full speed, W.
        design_heat_w: what the towers reject at full flow and full speed of the fans where the water leaves
            at ``supply_c``, W …
        design_wet_bulb_c: … at this wet-bulb temperature, below ``supply_c``, °C.
        air_kg_s: air that the fans move at full speed, kg/s; ``flow_kg_s`` if left out.
        water_kg: water on the way, kg.
        cycles: by how much salts are concentrated before water is drained.
    """

    liquid_share: float = Field(default=1.0, gt=0, le=1)
    air_cop: Positive | None = None
    supply_c: Celsius
    range_k: Positive
    flow_kg_s: Positive
    least_flow: float = Field(default=0.5, gt=0, le=1)
    pump_w: Watts
    fan_w: Watts
    design_heat_w: Positive
    design_wet_bulb_c: Celsius
    air_kg_s: Positive | None = None
    water_kg: Positive
    cycles: float = Field(default=4.0, gt=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.design_wet_bulb_c >= self.supply_c:
            raise ValueError(
                f"design_wet_bulb_c is {self.design_wet_bulb_c:g}, it must be below supply_c, "
                f"{self.supply_c:g}: towers cannot cool water below the wet bulb"
            )
        return self
