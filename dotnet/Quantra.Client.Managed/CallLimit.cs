using Quantra.Client.Wire;

namespace Quantra.Client.Managed;

/// <summary>Ends a call that is cancelled or takes too long. The call checks it between steps.</summary>
/// <param name="timeout">Time from now.</param>
/// <param name="cancellationToken">Cancels the call.</param>
internal readonly struct CallLimit(TimeSpan timeout, CancellationToken cancellationToken)
{
    private readonly Deadline _deadline = Deadline.After(timeout);

    /// <summary>No limit, for calls of the package itself.</summary>
    public static CallLimit None => new(TimeSpan.FromDays(1), CancellationToken.None);

    /// <exception cref="QuantraException">DEADLINE_EXCEEDED</exception>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public void Check()
    {
        cancellationToken.ThrowIfCancellationRequested();
        if (_deadline.HasPassed)
        {
            var message = FormattableString.Invariant($"no response within {timeout.TotalSeconds:g} s; set a longer timeout");
            throw PredictionError.Of(QuantraStatus.DeadlineExceeded, QuantraReason.DeadlineExceeded, message).ToException();
        }
    }
}
