using Quantra.Client;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>What went wrong last, until something goes well or the user has read it.</summary>
public sealed class ProblemViewModel : Observable
{
    private QuantraError? _error;

    /// <summary>Nothing is wrong.</summary>
    public ProblemViewModel() => Dismiss = new AsyncCommand(() =>
    {
        Error = null;
        return Task.CompletedTask;
    });

    /// <summary>The error; null = nothing is wrong.</summary>
    public QuantraError? Error
    {
        get => _error;
        private set
        {
            if (!Set(ref _error, value))
                return;
            Tell(nameof(IsShown));
            Tell(nameof(Text));
        }
    }

    /// <summary>Whether there is one.</summary>
    public bool IsShown => Error is not null;

    /// <summary>What is wrong, which value, and what to do; "" = nothing.</summary>
    public string Text => Error?.Message ?? "";

    /// <summary>Lets the user put it away.</summary>
    public AsyncCommand Dismiss { get; }

    /// <summary>Does something, and shows the error if it fails.</summary>
    /// <returns>Whether it went well.</returns>
    public async Task<bool> WatchAsync(Func<Task> work)
    {
        ArgumentNullException.ThrowIfNull(work);
        try
        {
            await work();
            Error = null;
            return true;
        }
        catch (QuantraException failure)
        {
            Error = failure.Error;
            return false;
        }
    }
}
