"""What the contract tests stand on: partners, links, arrays with guards, hostile bytes."""
