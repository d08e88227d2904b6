"""The package `nvidia` where `nvidia.dali` is another name of jaxdali. Other packages' parts of it stay where they are."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
