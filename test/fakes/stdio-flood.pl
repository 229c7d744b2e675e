#!/usr/bin/perl
# Answers calls while its child runs the given Perl code, which floods stderr; reports the end of the child.
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
