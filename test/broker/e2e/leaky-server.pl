#!/usr/bin/perl
# A legacy MCP server that says everything it knows. At each call it writes its secrets to stderr:
#   SECRET        its own secret
#   CONFIDED      secrets that others should not have told it, such as keys, one per line
#   TOOLS=TEXT    the array with which it answers tools/list
# It answers with "nonce"; with "fails":true by an error that quotes SECRET and CONFIDED.
use strict;
use warnings;
require(($0 =~ m{^(.*/)})[0] . '../../fakes/legacy-pipe.pl');
my $buffer = '';
my ($secret, $confided) = ($ENV{SECRET} // '', $ENV{CONFIDED} // '');
while (sysread STDIN, $buffer, 1 << 16, length $buffer) {
  while ($buffer =~ s/^(.*)\n//) {
    my $line = $1;
    my ($id, $method) = request($line) or next;
    if ($method ne 'tools/call') {
      answer($id, usual_answer('leaky', $method));
      next;
    }
    syswrite STDERR, "ran with $secret\n$confided\n";
    (my $quoted = "$secret $confided") =~ s/\n/ /g;
    answer($id, $line =~ /"fails":true/
      ? qq("error":{"code":-32000,"message":"refused by $quoted"})
      : text_result(nonce_of($line)));
  }
}
