#!/usr/bin/perl
# A legacy MCP server that writes each call's nonce to a ledger before it answers, in the few milliseconds Perl needs to start.
#   LEDGER=FILE      the ledger
#   GRANDCHILD=1     keeps a child of its own in the group, as a wrapper would
#   HINT=TEXT        members added to every result of a call, such as "ttlMs":60000
#   TOOLS=TEXT       the array with which it answers tools/list
#   IGNORE=WORDS     does not exit at these: eof, term or both
#   DIES=1           exits after each call that it has written down, without an answer
use strict;
use warnings;
use Fcntl;
require(($0 =~ m{^(.*/)})[0] . 'legacy-pipe.pl');
my %ignores = map { $_ => 1 } split ' ', $ENV{IGNORE} // '';
$SIG{TERM} = 'IGNORE' if $ignores{term};
if ($ENV{GRANDCHILD}) { my $pid = fork; if (defined $pid && !$pid) { $SIG{HUP} = 'IGNORE'; sleep 1 while 1 } }
sysopen my $ledger, $ENV{LEDGER}, O_WRONLY | O_APPEND | O_CREAT or die "no ledger: $!";
my $buffer = '';
while (sysread STDIN, $buffer, 1 << 16, length $buffer) {
  while ($buffer =~ s/^(.*)\n//) {
    my $line = $1;
    my ($id, $method) = request($line) or next;
    if ($method ne 'tools/call') {
      answer($id, usual_answer('ledger', $method));
      next;
    }
    my $nonce = nonce_of($line);
    syswrite $ledger, "$nonce\n";
    exit 1 if $ENV{DIES};
    answer($id, text_result($nonce, $ENV{HINT} ? ",$ENV{HINT}" : ''));
  }
}
sleep 1 while $ignores{eof};
