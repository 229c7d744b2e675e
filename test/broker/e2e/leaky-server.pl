#!/usr/bin/perl
# A legacy MCP server that says everything it knows. At each call it writes its secrets to stderr:
#   SECRET        of its own
#   CONFIDED      what others should not have told it, such as keys, one to a line
#   TOOLS=TEXT    what tools/list answers: the array
# It answers with "nonce"; with "fails":true by an error that quotes SECRET and CONFIDED.
use strict;
use warnings;
$| = 1;
my $buffer = '';
my ($secret, $confided) = ($ENV{SECRET} // '', $ENV{CONFIDED} // '');
while (sysread STDIN, $buffer, 1 << 16, length $buffer) {
  while ($buffer =~ s/^(.*)\n//) {
    my $line = $1;
    next unless $line =~ /"id":(\d+),"method":"([^"]+)"/;
    my ($id, $method) = ($1, $2);
    my $body = '"error":{"code":-32601,"message":"Method not found"}';
    if ($method eq 'initialize') {
      $body = '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"leaky","version":"1"}}';
    } elsif ($method eq 'ping') {
      $body = '"result":{}';
    } elsif ($method eq 'tools/list') {
      $body = qq("result":{"tools":$ENV{TOOLS}});
    } elsif ($method eq 'tools/call') {
      my ($nonce) = $line =~ /"nonce":"([^"]+)"/;
      syswrite STDERR, "ran with $secret\n$confided\n";
      (my $quoted = "$secret $confided") =~ s/\n/ /g;
      $body = $line =~ /"fails":true/
        ? qq("error":{"code":-32000,"message":"refused by $quoted"})
        : qq("result":{"content":[{"type":"text","text":"$nonce"}]});
    }
    my $answer = qq({"jsonrpc":"2.0","id":$id,$body}\n);
    my $at = 0;
    $at += syswrite(STDOUT, $answer, length($answer) - $at, $at) // exit 1 while $at < length $answer;
  }
}
