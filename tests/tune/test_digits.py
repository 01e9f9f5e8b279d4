import torch

from torch_dpfts.problems.digits import DigitsTable, config_at, from_cube
from torch_dpfts.tune.digits import digits_sites, digits_space, digits_spec


def test_the_space_is_that_of_the_table() -> None:
    spec = digits_spec(num_sites=12, num_rounds=3)
    fields = DigitsTable().spec_fields
    assert {name: getattr(spec, name) for name in fields} == fields
    space = digits_space()
    X = from_cube(torch.rand(20, 6, generator=torch.Generator().manual_seed(0)).double())
    for x in X:
        assert space.decode(x) == config_at(x)


def test_sites_take_the_options_of_a_site() -> None:
    sites = digits_sites(12, time_limit=60.0)
    assert [site.agent_id for site in sites] == list(range(12))
    assert {site.time_limit for site in sites} == {60.0}
