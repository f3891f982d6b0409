"""What a package's launchers would run at some size, and why: `fusegen plan --rows`."""
