"""Private draws from continuous distributions: boosted and plug-in mollifiers, their samplers and certificates."""
