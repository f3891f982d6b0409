"""Renders and compiles the specs into the wheel, which is then for one platform and every Python from 3.10 on."""

from setuptools import setup

from fusegen.setuptools import kernels

setup(**kernels("specs", package="mypackage.generated"))
