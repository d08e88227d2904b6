"""The CUDA kernels of jaxdali, which imports them from here."""
