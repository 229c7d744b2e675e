#!/usr/bin/perl
# Answers calls while a part of it runs the given perl code, which floods stderr; then says so.
use strict;
use warnings;
$| = 1;
my $pid = fork;
if (!$pid) {
  eval $ARGV[0];
  syswrite STDOUT, qq({"jsonrpc":"2.0","method":"flood","params":{"flood":"over"}}\n);
  exit 0;
}
while (my $line = <STDIN>) {
  syswrite STDOUT, qq({"jsonrpc":"2.0","id":$1,"result":{}}\n) if $line =~ /"id":(\d+)/;
}
