#!/usr/bin/perl
# A minimal MCP server: answers every request with an empty result, and misbehaves as its options say.
#   --ignore-eof --ignore-term   stays when its stdin closes, when it is asked to leave
#   --ledger FILE                appends the id of every request before it answers
#   --no-read                    never reads its stdin
#   --say TEXT                   writes TEXT to stdout first (\n and \xHH are understood)
#   --stderr TEXT                writes TEXT to stderr first
#   --exit CODE                  then leaves at once with CODE
#   --exit-on-call CODE          leaves at the first request, without an answer
#   --close-stdin --close-stdout closes the stream, and lives on
use strict;
use warnings;
$| = 1;
my %opt;
while (defined(my $flag = shift @ARGV)) {
  $flag =~ s/^--//;
  $opt{$flag} = $flag =~ /^(ledger|say|stderr|exit|exit-on-call|grandchild)$/ ? shift @ARGV : 1;
}
sub plain { my $text = shift; $text =~ s/\\n/\n/g; $text =~ s/\\x([0-9a-f]{2})/chr hex $1/gie; return $text }
$SIG{TERM} = 'IGNORE' if $opt{'ignore-term'};
syswrite STDERR, plain($opt{stderr}) if defined $opt{stderr};
if (defined $opt{grandchild}) {
  # 'plain' stays in the group, 'setsid' leaves it, 'daemon' leaves it and our parentage.
  pipe my $ready, my $not_ready;
  my $pid = fork;
  if (!$pid) {
    if ($opt{grandchild} ne 'plain') { require POSIX; POSIX::setsid() }
    if ($opt{grandchild} eq 'daemon') { exit 0 if fork }
    if ($opt{grandchild} eq 'double') { exit 0 if fork }
    $SIG{HUP} = 'IGNORE';
    close $not_ready;
    sleep 1 while 1;
  }
  # Our exit ends the whole group: first the grandchild leaves it.
  close $not_ready;
  sysread $ready, my $nothing, 1;
  waitpid $pid, 0 if $opt{grandchild} =~ /daemon|double/;
}
syswrite STDOUT, plain($opt{say}) if defined $opt{say};
exit $opt{exit} if defined $opt{exit};
close STDOUT if $opt{'close-stdout'};
if ($opt{'close-stdin'}) { close STDIN; sleep 1 while 1 }
if ($opt{'no-read'}) { sleep 1 while 1 }
my $buffer = '';
while (sysread STDIN, $buffer, 1 << 18, length $buffer) {
  my $end = rindex $buffer, "\n";
  next if $end < 0;
  my $lines = substr $buffer, 0, $end + 1, '';
  my $answers = '';
  while ($lines =~ /"id":(\d+)/g) {
    exit $opt{'exit-on-call'} if defined $opt{'exit-on-call'};
    if ($opt{ledger}) { open my $ledger, '>>', $opt{ledger} or die; syswrite $ledger, "$1\n"; close $ledger }
    $answers .= qq({"jsonrpc":"2.0","id":$1,"result":{}}\n);
  }
  my $at = 0;
  $at += syswrite(STDOUT, $answers, length($answers) - $at, $at) // exit 1 while $at < length $answers;
}
if ($opt{'ignore-eof'}) { sleep 1 while 1 }
