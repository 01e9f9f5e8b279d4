import torch

from torch_dpfts.rng import derived_generator, derived_seed, fresh_seed, normal_rows, uniform_rows


def test_a_key_names_its_draw() -> None:
    seeds = {
        derived_seed(s, *key) for s in (0, 1) for key in [("a",), ("a", 1), ("a", 2), ("b", 1)]
    }
    assert len(seeds) == 8
    assert derived_seed(3, "a", 1) == derived_seed(3, "a", 1)


def test_rows_do_not_depend_on_their_neighbours() -> None:
    three = normal_rows([derived_generator(s) for s in (0, 1, 2)], (4, 2), torch.float64)
    alone = normal_rows([derived_generator(1)], (4, 2), torch.float64)
    assert torch.equal(three[1], alone[0])
    assert torch.equal(
        uniform_rows([derived_generator(5)], (3,), torch.float32),
        uniform_rows([derived_generator(5)], (3,), torch.float64).float(),
    )


def test_the_global_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    derived_generator(0)
    normal_rows([derived_generator(1)], (3,), torch.float64)
    assert torch.equal(before, torch.random.get_rng_state())


def test_fresh_seeds_differ() -> None:
    assert len({fresh_seed() for _ in range(100)}) == 100
