"""`zerohop verify`: writes patterns and reads them back between two processes, like a memory tester."""
