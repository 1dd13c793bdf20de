"""Wing B: Program -> Program -> Plan. Each stage is one function, named like its file."""
