"""What several test files share: small collections, oracles, stand-ins for packages that are not installed."""
