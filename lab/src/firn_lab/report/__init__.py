"""Reports of runs: HTML, Markdown, PNG."""
