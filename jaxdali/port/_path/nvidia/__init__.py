"""The package `nvidia` in which `nvidia.dali` is an alias of jaxdali. Parts of `nvidia` from other packages remain
available.
"""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
