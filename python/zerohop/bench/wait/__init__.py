"""How long processes wait for each other: `zerohop bench wait`."""
