"""The program koord-manager: overcommits nodes, writes node policies, and guards objects at admission."""
