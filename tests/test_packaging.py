"""What pyproject.toml says about dependencies."""

import tomllib

import places

PROJECT = tomllib.loads((places.ROOT / "pyproject.toml").read_text())


def test_the_test_group_has_the_optional_packages():
    """What a test needs is there: the README's second command installs the group, not the extras."""
    groups = PROJECT["dependency-groups"]
    test = {d for d in groups["test"] if isinstance(d, str)} | {*groups["s3"]}
    for extra, needed in PROJECT["project"]["optional-dependencies"].items():
        if extra not in ("benchmark", "examples", "flax", "torch"):  # the first command's, and what CI installs by itself
            assert {*needed} <= test, extra


def test_dependencies_have_lower_bounds():
    extras = PROJECT["project"]["optional-dependencies"].values()
    for d in [*PROJECT["project"]["dependencies"], *(d for needed in extras for d in needed)]:
        assert ">=" in d or d.startswith("jaxdali["), d
