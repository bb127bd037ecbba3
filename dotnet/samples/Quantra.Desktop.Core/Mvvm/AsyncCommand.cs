using System.Windows.Input;

namespace Quantra.Desktop.Mvvm;

/// <summary>What a button does that takes time: one run at a time, and the button is off meanwhile.</summary>
/// <param name="work">What it does, on the window's thread.</param>
/// <param name="can">Whether it can be done now; null = always.</param>
public sealed class AsyncCommand(Func<Task> work, Func<bool>? can = null) : ICommand
{
    private bool _isRunning;

    /// <inheritdoc/>
    public event EventHandler? CanExecuteChanged;

    /// <inheritdoc/>
    public bool CanExecute(object? parameter) => !_isRunning && (can is null || can());

    /// <inheritdoc/>
    /// <remarks>What goes wrong is thrown on the window's thread, as with an event handler.</remarks>
    public async void Execute(object? parameter) => await RunAsync();

    /// <summary>Does it; nothing if it cannot be done now.</summary>
    public async Task RunAsync()
    {
        if (!CanExecute(null))
            return;
        _isRunning = true;
        Refresh();
        try
        {
            await work();
        }
        finally
        {
            _isRunning = false;
            Refresh();
        }
    }

    /// <summary>Lets the button ask again whether it can be done.</summary>
    public void Refresh() => CanExecuteChanged?.Invoke(this, EventArgs.Empty);
}
