"""What lies in an output directory besides packages: shared sources, the manifest, files for git."""
