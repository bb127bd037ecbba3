using Quantra.Client;
using Quantra.Desktop.Mvvm;

namespace Quantra.Desktop.ViewModels;

/// <summary>The last error, until a call succeeds or the user dismisses it.</summary>
public sealed class ErrorViewModel : ObservableObject
{
    private QuantraError? _error;

    /// <summary>Creates a view model without an error.</summary>
    public ErrorViewModel() => Dismiss = new AsyncCommand(() =>
    {
        Error = null;
        return Task.CompletedTask;
    });

    /// <summary>The error; null = none.</summary>
    public QuantraError? Error
    {
        get => _error;
        private set
        {
            if (!Set(ref _error, value))
                return;
            OnPropertyChanged(nameof(IsShown));
            OnPropertyChanged(nameof(Text));
        }
    }

    /// <summary>Whether there is an error.</summary>
    public bool IsShown => Error is not null;

    /// <summary>The error message; "" = no error.</summary>
    public string Text => Error?.Message ?? "";

    /// <summary>Removes the error.</summary>
    public AsyncCommand Dismiss { get; }

    /// <summary>Runs some work and shows its error.</summary>
    /// <returns>Whether the work succeeded.</returns>
    public async Task<bool> CatchAsync(Func<Task> work)
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
