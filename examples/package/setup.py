"""The wheel holds compiled libraries: it is for one platform and one Python, which its name has to say."""

from setuptools import Distribution, setup


class WithLibraries(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=WithLibraries)
