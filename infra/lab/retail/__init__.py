"""The real input: the invoices of a UK web shop, mapped to the commands of this one."""
