"""The fixture that runs a program in the simulator, as users meet it."""

import pytest

from tests.deep import one_in
from tests.plugin.conftest import Run

pytestmark = pytest.mark.slow

SIMULATED = """
    import pytest

    async def copies(node):
        async with node.consumer("in", group_id="g", auto_offset_reset="earliest") as consumer:
            async with node.producer() as producer:
                while True:
                    for record in await consumer.poll(500):
                        await producer.send("out", record.value)

    def check(records):
        assert {each.value for each in records["out"]} != {b"a", b"b"}, "all is well"

    @pytest.mark.simulation_seeds(range(7, 9))
    def test_a_copy(simulated):
        topics = {"in": 1, "out": 1}
        simulated(copies, topics=topics, inputs={"in": [b"a", b"b"]}, check=check, faults=1)

    def test_ten(simulated):
        ...
"""


def test_a_program_is_simulated_under_the_seeds_of_its_test(run: Run) -> None:
    result = run(SIMULATED)
    result.assert_outcomes(failed=2, passed=10)
    result.stdout.fnmatch_lines(
        ["*test_a_copy?seed-7?*", "*all is well*", "*seed 7: *", "*test_a_copy?seed-8?*"]
    )


@pytest.mark.parametrize("mark", one_in(3, ["0", "True", "'7'", "range(0)", "1, 2", ""]))
def test_seeds_that_cannot_be_are_refused(run: Run, mark: str) -> None:
    result = run(
        f"""
        import pytest

        @pytest.mark.simulation_seeds({mark})
        def test_one(simulated): ...
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*test_one: @pytest.mark.simulation_seeds*at least 1, or a range*"]
    )
