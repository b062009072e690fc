"""Triton kernels for narrow convolutional networks on a GPU, used by the captured path where they apply."""
