#!/usr/bin/perl
# A legacy MCP server that writes each call's nonce to a ledger before it answers, in the few milliseconds Perl needs to start.
#   LEDGER=FILE      the ledger
#   GRANDCHILD=1     keeps a child of its own in the group, as a wrapper would
#   HINT=TEXT        members added to every result of a call, such as "ttlMs":60000
#   TOOLS=TEXT       what tools/list answers: the array
#   IGNORE=WORDS     what it does not leave for: eof, term or both
#   DIES=1           leaves after each call it has written down, without an answer
use strict;
use warnings;
use Fcntl;
$| = 1;
my %ignores = map { $_ => 1 } split ' ', $ENV{IGNORE} // '';
$SIG{TERM} = 'IGNORE' if $ignores{term};
if ($ENV{GRANDCHILD}) { my $pid = fork; if (defined $pid && !$pid) { $SIG{HUP} = 'IGNORE'; sleep 1 while 1 } }
sysopen my $ledger, $ENV{LEDGER}, O_WRONLY | O_APPEND | O_CREAT or die "no ledger: $!";
my $buffer = '';
while (sysread STDIN, $buffer, 1 << 16, length $buffer) {
  while ($buffer =~ s/^(.*)\n//) {
    my $line = $1;
    next unless $line =~ /"id":(\d+),"method":"([^"]+)"/;
    my ($id, $method) = ($1, $2);
    my $body = '"error":{"code":-32601,"message":"Method not found"}';
    if ($method eq 'initialize') {
      $body = '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"ledger","version":"1"}}';
    } elsif ($method eq 'ping') {
      $body = '"result":{}';
    } elsif ($method eq 'tools/list' && $ENV{TOOLS}) {
      $body = qq("result":{"tools":$ENV{TOOLS}});
    } elsif ($method eq 'tools/call') {
      my ($nonce) = $line =~ /"nonce":"([^"]+)"/;
      syswrite $ledger, "$nonce\n";
      exit 1 if $ENV{DIES};
      my $hint = $ENV{HINT} ? ",$ENV{HINT}" : '';
      $body = qq("result":{"content":[{"type":"text","text":"$nonce"}]$hint});
    }
    my $answer = qq({"jsonrpc":"2.0","id":$id,$body}\n);
    my $at = 0;
    $at += syswrite(STDOUT, $answer, length($answer) - $at, $at) // exit 1 while $at < length $answer;
  }
}
sleep 1 while $ignores{eof};
